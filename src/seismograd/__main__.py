"""`python -m seismograd`, the same as `seismograd`."""

from seismograd.cli import main

if __name__ == "__main__":
    main()
