"""What does branching buy? Enumerated levels, estimators in expectation, trials, and their page."""
