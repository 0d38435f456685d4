"""Imported before a process is forked: all that a page is made with."""

import pandas  # noqa: F401

import reports.render.commands  # noqa: F401
from harness.config.keys import code_digests
from reports.render.templating import html_templates

for name in ("index.html.j2", "rates.html.j2", "rows.html.j2", "method.html.j2", "causes.html.j2"):
    html_templates().get_template(name)
code_digests()  # of the harness's own modules, each parsed once
