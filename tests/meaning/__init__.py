"""Cases of meaning that changed between versions: planted and public ones, and controls."""
