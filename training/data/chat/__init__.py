"""Small talk and small facts, written for this model by its authors."""
