"""Operations on the conductor's side: the engine drives their rows, the modules here have what is their own."""
