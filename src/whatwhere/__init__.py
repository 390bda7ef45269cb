"""whatwhere: text encoders that keep meaning apart from position, and instruments that show what position does."""
