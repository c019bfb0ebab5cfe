"""`python -m dreamerv3` is the `dreamer` command."""

__all__ = ['main']


def main() -> int:
    """Runs the command; whoever interrupts it while it loads interrupts nothing."""
    try:
        from embodied.processes.signals import end_quietly

        from .main import main as run
    except KeyboardInterrupt:
        return 0
    try:
        return run()
    finally:
        end_quietly()


if __name__ == '__main__':
    raise SystemExit(main())
