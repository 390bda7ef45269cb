"""Models as others use them: opened, described, tried, asked for predictions and handed over."""
