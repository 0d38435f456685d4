"""The phases of a run, each over everything that is planned of it; `harness.run` does one of them."""
