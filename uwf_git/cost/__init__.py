"""What threads have used of steps, tokens, money and time, and what they may use."""
