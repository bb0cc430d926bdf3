"""What answers are worth: agreement, feedback, and the trial of a new bundle."""
