"""Rows of orders that an aggregate by customer makes much state of: the same for whoever reads them."""
import base64, pathlib, random, threading, time

COLUMNS = "id BIGINT, customer BIGINT, note TEXT"
# The state of an aggregate by customer that keeps the greatest note, as Millpond counts it.
STATE_BYTES = 140
STEP_SECONDS = 0.05


def customer(number: int) -> int:
    """Another one for each row at first; never 0."""
    return number * 0x9E3779B1 % (1 << 32)


def write(folder: pathlib.Path, count: int, files: int = 4) -> None:
    """The first rows, of a customer each, as CSV files."""
    for part in range(files):
        notes = random.Random(part)
        with open(folder / f"first-{part}.csv", "w") as out:
            for number in range(part + 1, count + 1, files):
                out.write(f"{number},{customer(number)},{base64.b64encode(notes.randbytes(75)).decode()}\n")


class Feed(threading.Thread):
    """Goes on with rows at a constant rate, of the same customers and, last in each step, of customer 0.

    Millpond gets them as new lines of two files, Flink, which reads no file that grows, as new files.
    """

    def __init__(self, folder: pathlib.Path, count: int, rate: int, growing: bool):
        super().__init__(daemon=True)
        self.folder, self.first, self.per_step, self.growing = folder, count, max(1, int(rate * STEP_SECONDS)), growing
        # Of the newest row that can be read.
        self.newest, self.ended = count, threading.Event()
        # Whoever holds it stops the feed.
        self.gate = threading.Lock()

    def step(self, step: int) -> str:
        some, start = random.Random(-1 - step), self.newest + 1
        rows = [(number, customer(some.randint(1, self.first))) for number in range(start, start + self.per_step)]
        rows[-1] = (rows[-1][0], 0)
        return "".join(f"{number},{who},{base64.b64encode(some.randbytes(75)).decode()}\n" for number, who in rows)

    def put(self, step: int, text: str) -> None:
        if self.growing:
            with open(self.folder / f"feed-{step % 2}.csv", "a") as out:
                out.write(text)
        else:
            hidden = self.folder / f".feed-{step}"
            hidden.write_text(text)
            hidden.rename(self.folder / f"feed-{step}.csv")

    def run(self) -> None:
        began, step = time.monotonic(), 0
        while not self.ended.wait(max(0.0, began + step * STEP_SECONDS - time.monotonic())):
            with self.gate:
                self.put(step, self.step(step))
                self.newest += self.per_step
            step += 1

    def end(self) -> None:
        self.ended.set()
        if self.is_alive():
            self.join()
