"""Operations in the conductor: the engine that drives their rows, and a module for each that needs more."""
