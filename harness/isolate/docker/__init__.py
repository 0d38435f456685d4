"""The container engine, through Docker's SDK: nothing else imports it.

An engine may be anywhere: nothing here assumes that it sees this machine's files. What a sandbox reads goes in, and
what it leaves comes out, through the API.
"""
