"""The pure part: the loop and what it needs. No llama.cpp, no files, no terminal."""
