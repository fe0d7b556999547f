"""What people approve: what they were shown, their records, and which of these count."""
