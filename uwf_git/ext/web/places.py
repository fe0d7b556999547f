"""`/step/HASH` and `/node/HASH`: the place of a step, an attempt or a version, by the beginning of its hash."""

from __future__ import annotations

from typing import Any

from uwf_git.plugin import Instance, Page, PageRequest, node_places, page_addresses


def page(instance: Instance, request: PageRequest) -> Page:
    """Lead to the only place, or list several. Raises NotFound, Usage."""
    found = node_places(instance, request.parts["hash"])
    items = [{**place, "address": _address(place)} for place in found]
    if len(items) == 1:
        return Page("", "", {"location": items[0]["address"]}, 303)
    return Page("places.html", "Several begin so", {"places": items, "prefix": request.parts["hash"].upper()})


def _address(place: dict[str, Any]) -> str:
    if place["kind"] == "workflow":
        return page_addresses.workflow(place["node"])
    thread = place["thread"]
    if place["kind"] == "attempt":
        return page_addresses.attempt(thread, place["node"])
    return (
        page_addresses.step(thread, place["number"])
        if place["kind"] == "step"
        else page_addresses.thread(thread)
    )
