"""A real Slurm on this machine, and matrices that run on its nodes."""
