"""The message of the exception cannot be printed, and holds what a terminal would obey."""

# exit: 1
# stderr: <exception str() failed>
# run: status=crashed steps=0
# when: thorough

class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")


try:
    raise ValueError("\x1b[31mred\x1b[0m\n[bold]not markup[/bold]\n\udc80")
except ValueError as error:
    print(repr(str(error)))
raise Odd
