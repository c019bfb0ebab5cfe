"""`python -m dreamerv3` is the `dreamer` command."""

__all__ = ['main']


def main() -> int:
    """Runs the command. An interrupt while it loads ends it before anything begins."""
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
    from pathlib import Path

    from dreamer_parallel import main as run_unless_in_the_way

    raise SystemExit(run_unless_in_the_way(Path(__file__).resolve().parents[1]))
