"""Word lists shared by the generators."""

from training.data.lists import words

NOUNS = words("nouns")
VERBS = words("verbs")
ADJECTIVES = words("adjectives")
NAMES = words("names")
CITIES = words("cities")
