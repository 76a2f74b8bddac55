"""At home in the frameworks: each module here needs one of them, and only when it is used."""
