"""`/crews` and `/crew/NAME` of `uwf web`."""

from __future__ import annotations

from uwf_git.plugin import Instance, Page, PageRequest, definitions


def crews(instance: Instance, asked: PageRequest) -> Page:
    from uwf_git.ext.crews.commands.commands import registered as registered_crews
    from uwf_git.ext.crews.registry import Crews

    return Page("crews.html", "Crews", {"crews": registered_crews(Crews(instance.store))})


def crew(instance: Instance, request: PageRequest) -> Page:
    """Show a crew, with ~2 the second version before. Raises NotFound."""
    from uwf_git.ext.crews.commands.commands import FORMS, crew_value, does
    from uwf_git.ext.crews.commands.commands import past as past_crews
    from uwf_git.ext.crews.registry import Crews

    crews = Crews(instance.store)
    version = crews.named(request.parts["name"])
    value = crew_value(crews.crew(version.hash), version.hash, version.commit)
    return Page(
        "crew.html",
        f"Crew {value['name']}",
        {
            "crew": value,
            "form": FORMS.get(value["format"], value["format"]),
            "updated": version.time,
            "does": does,
            "versions": past_crews(crews, version.name),
            "note": definitions.history_note,
        },
    )
