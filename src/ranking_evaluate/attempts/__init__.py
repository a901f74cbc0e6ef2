"""What is remembered of a purchase: attempts, their states, the decision table and the stores."""
