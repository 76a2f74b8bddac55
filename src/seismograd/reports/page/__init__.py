"""The report page: one run, or several of one process, in one HTML file that needs nothing else."""

from seismograd.reports.page.page import render_page, write_page

__all__ = ["render_page", "write_page"]
