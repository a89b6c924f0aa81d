"""Parts that every daemon needs: service loop, health endpoint, sockets, CPU affinity, notifications."""
