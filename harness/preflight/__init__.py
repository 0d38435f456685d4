"""What cannot work, found before anything long begins: without an environment, and without running code under test.

It refuses what is certain, and says what it did not check.
"""
