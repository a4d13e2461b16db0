"""What travels: request models of each API dialect, and the replies' shapes."""
