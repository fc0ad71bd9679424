"""`python -m daemon` is `bulkhead`."""

from daemon.cli import main

if __name__ == "__main__":
    main()
