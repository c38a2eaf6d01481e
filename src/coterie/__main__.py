"""`python -m coterie` is the command `coterie`, for where it is not on the path."""

from coterie.cli import main

if __name__ == "__main__":
    main()
