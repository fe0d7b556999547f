"""Child processes: started, bounded, watched, and ended with all that they have started."""
