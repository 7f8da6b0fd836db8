"""Models that say something of every place in an image, and how they are judged."""
