"""What training shows besides metrics: texts, images, sound, video, histograms, tables.

Standard library only, Python 3.8+."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from phalanx.tracking import saved_files
from phalanx.tracking import values as conversion
from phalanx.tracking.recorder import Recorder
from phalanx.tracking.values import NotANumber, short_name

MOST_ROWS = 100_000
LARGEST_TABLE = 12 << 20
SHOWN = ("name", "step", "caption")


class Media(Recorder):
    """Each call writes one event; files are copied or written beside it."""

    def text(self, name: str, text: Any, step: int | None = None, **others: Any) -> None:
        self._ignore("text", others, ("name", "text", "step"))
        self.note("text", lambda: {**self._about(name, step), "text": conversion.short_text(str(text))})

    def _about(self, name: Any, step: Any, caption: Any = None) -> dict[str, Any]:
        about = {"name": short_name(conversion.clean(str(name))), "step": self._step(step)}
        return about if caption is None else {**about, "caption": conversion.short_text(str(caption))}

    def image(self, name: str, image: Any, step: int | None = None, caption: str | None = None, **others: Any) -> None:
        """Record an image: the path of a file, an array (numpy, PyTorch, TensorFlow, JAX), nested lists, an image of
        PIL, or a figure of matplotlib."""
        self._ignore("image", others, ("name", "image", *SHOWN[1:]))
        self.note(
            "image",
            lambda: {"caption": None, **self._about(name, step, caption), "path": self._kept(image, _image_saver)},
        )

    log_image = image

    def figure(
        self, name: str, figure: Any, step: int | None = None, caption: str | None = None, **others: Any
    ) -> None:
        """Record a figure: of matplotlib as an image, of plotly as a page below `artifacts/figures`."""
        if hasattr(figure, "write_html") and not hasattr(figure, "savefig"):
            self.note("artifact", lambda: self._page(name, step, figure))
        else:
            self.image(name, figure, step, caption, **others)

    def _page(self, name: Any, step: Any, figure: Any) -> dict[str, Any]:
        number = self._step(step)
        inside = f"artifacts/{saved_files.safe_name(f'figures/{name}')}{'' if number is None else f'-{number}'}.html"
        size = saved_files.save_file(figure.write_html, os.path.join(self.run_folder, inside), ".html")
        return {"path": inside, "name": short_name(conversion.clean(str(name))), "type": "figure", "size": size}

    def audio(
        self,
        name: str,
        audio: Any,
        step: int | None = None,
        caption: str | None = None,
        *,
        sample_rate: int = 44_100,
        **others: Any,
    ) -> None:
        """Record sound: the path of a file, or an array of samples (x channels), which is stored as WAV."""
        self._ignore("audio", others, ("name", "audio", *SHOWN[1:], "sample_rate"))

        def saver(given: Any) -> tuple[Callable[[str], Any], str]:
            from phalanx.tracking import media_files  # for the few that need it

            return (lambda draft: media_files.write_wav(given, sample_rate, draft)), ".wav"

        self.note("audio", lambda: {**self._about(name, step, caption), "path": self._kept(audio, saver)})

    def video(self, name: str, video: Any, step: int | None = None, caption: str | None = None, **others: Any) -> None:
        """Record a video: the path of a file that browsers play (mp4, webm, gif)."""
        self._ignore("video", others, ("name", "video", *SHOWN[1:]))

        def saver(given: Any) -> tuple[Callable[[str], Any], str]:
            raise NotANumber(f"a {type(given).__name__} is not the path of a file")

        self.note("video", lambda: {**self._about(name, step, caption), "path": self._kept(video, saver)})

    def _kept(self, given: Any, saver: Callable[[Any], tuple[Callable[[str], Any], str]]) -> str:
        """The copy of a file, or the file that a saver writes, in the folder of the attempt."""
        is_path = isinstance(given, (str, os.PathLike))
        save, ending = (None, os.path.splitext(os.fsdecode(given))[1].lower()[:10]) if is_path else saver(given)
        # A pid may have been used before in this folder.
        stamp = f"{os.getpid()}-{int(self._started_at * 1000):x}-{next(self._copies)}"
        inside = f"media/{stamp}{ending if ending[1:].isalnum() else ''}"
        target = os.path.join(self.folder, inside)
        if save is None:
            saved_files.copy_file(os.fsdecode(given), target)
        else:
            saved_files.save_file(save, target, ending)
        return inside

    def histogram(
        self,
        name: str,
        values: Any = None,
        step: int | None = None,
        edges: Iterable[float] | None = None,
        counts: Iterable[int] | None = None,
        **others: Any,
    ) -> None:
        """Record the distribution of values; or given edges and counts."""
        self._ignore("histogram", others, ("name", "values", "step", "edges", "counts"))

        def note() -> dict[str, Any]:
            if edges is not None and counts is not None:
                bounds, many, odd = conversion.numbers_of(edges), [int(n) for n in conversion.numbers_of(counts)], 0
                if len(bounds) != len(many) + 1:
                    raise NotANumber(f"{len(many)} counts need {len(many) + 1} edges, not {len(bounds)}")
            else:
                bounds, many, odd = conversion.histogram(values)
            return {**self._about(name, step), "edges": bounds, "counts": many, "odd": odd}

        self.note("histogram", note)

    def table(
        self,
        name: str,
        columns: Any,
        rows: Iterable[Sequence[Any]] | None = None,
        step: int | None = None,
        **others: Any,
    ) -> None:
        """Record a table: the names of its columns and its rows; or, in place of the columns, all of it as a data
        frame, a mapping of columns, or a list of mappings."""
        self._ignore("table", others, ("name", "columns", "rows", "step"))

        def note() -> dict[str, Any]:
            names, found = _table(columns) if rows is None else (columns, rows)
            listed = [list(row) for row in conversion.some_of(found, MOST_ROWS)]
            return {
                **self._about(name, step),
                "columns": [conversion.short_text(str(column)) for column in names],
                "rows": conversion.as_json(listed, LARGEST_TABLE),
            }

        self.note("table", note)

    def points(
        self, name: str, points: Any, step: int | None = None, columns: Sequence[Any] = ("x", "y", "z"), **others: Any
    ) -> None:
        """Record points in two or three dimensions, drawn as dots: a precision-recall curve, an embedding."""
        self._ignore("points", others, ("name", "points", "step", "columns"))

        def note() -> dict[str, Any]:
            listed = points.tolist() if hasattr(points, "tolist") else points
            found = [[conversion.number(cell) for cell in row] for row in conversion.some_of(listed, MOST_ROWS)]
            width = len(found[0]) if found else 2
            if width not in (2, 3) or any(len(row) != width for row in found):
                raise NotANumber("points have two or three numbers each")
            names = [conversion.short_text(str(column)) for column in columns][:width]
            return {**self._about(name, step), "columns": names, "rows": conversion.as_json(found, LARGEST_TABLE)}

        self.note("points", note)


def _image_saver(image: Any) -> tuple[Callable[[str], Any], str]:
    """Figures and images save themselves; arrays are written here."""
    figure = getattr(image, "figure", None)
    for holder in (image, figure):
        if callable(getattr(holder, "savefig", None)):  # matplotlib: a figure, its axes or pyplot
            return (lambda draft, holder=holder: holder.savefig(draft)), ".png"
    if callable(getattr(image, "save", None)):
        return image.save, ".png"
    from phalanx.tracking import media_files  # for the few that need it

    return (lambda draft: media_files.write_png(image, draft)), ".png"


def _table(given: Any) -> tuple[Iterable[Any], Iterable[Sequence[Any]]]:
    """Columns and rows of a data frame, a mapping of columns, or mappings."""
    if hasattr(given, "itertuples"):  # pandas
        return list(given.columns), given.itertuples(index=False, name=None)
    if hasattr(given, "iter_rows"):  # polars
        return list(given.columns), given.iter_rows()
    if isinstance(given, Mapping):
        found = {name: list(cells) for name, cells in given.items()}
        if len({len(cells) for cells in found.values()}) > 1:
            raise NotANumber("the columns of a table must have the same length")
        return list(found), zip(*found.values())  # noqa: B905 - Python 3.8
    listed = [conversion.mapping_of(row) for row in conversion.some_of(given, MOST_ROWS)]
    rows = [row for row in listed if row is not None]
    if len(rows) < len(listed):
        raise NotANumber("a table needs its columns and its rows")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return names, ([row.get(name) for name in names] for row in rows)
