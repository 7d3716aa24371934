"""Entry point of ``python -m parc``."""

from parc.compiler.cli import main

if __name__ == "__main__":
    main()
