"""What is done to text and to small files."""
