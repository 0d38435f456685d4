"""The phases of a run, each over everything that is planned of it; `harness.steps` does one of them."""
