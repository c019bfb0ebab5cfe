"""`python -m dreamerv3` is the `dreamer` command."""

__all__ = ['main']


def main() -> int:
    """Runs the command; whoever interrupts it while it loads interrupts nothing."""
    try:
        from .main import main as run
    except KeyboardInterrupt:
        return 0
    return run()


if __name__ == '__main__':
    raise SystemExit(main())
