"""Parts of checkpoints."""


class Box:
    """A part that keeps one value and gives it away without a copy."""

    def __init__(self, value=None):
        self.value = value

    def save(self):
        return self.value

    def load(self, data):
        self.value = data
