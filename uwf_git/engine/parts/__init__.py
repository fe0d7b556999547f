"""The parts of a step that go along with several kinds of turns: what each adds to them, by the hooks of a turn."""
