"""One step of one thread: who is asked, what is accepted, and where the thread is then."""
