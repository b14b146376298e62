"""Who provides what, as data and in words."""

from binding.binding_fakes import ATTENTION, Backend, Override, Recorder, allocate, bind


def test_the_reference_alone() -> None:
    hal = bind()
    found = hal.describe()
    assert (found.device, found.backend, found.layouts) == ("cpu", "reference", {})
    assert set(found.methods.values()) == {"reference"}
    assert "memory.translate" in found.methods
    assert not any(": " in name for name in found.methods)
    assert found.fallbacks == ()
    text = str(found)
    assert text.splitlines()[0] == f"backend 'reference' on cpu: {hal.selection.reason}"
    assert "  memory.translate: reference" in text.splitlines()
    assert "done by the reference" not in text


STEPS = ("prepare", "prefill", "verify", "commit", "copy_slots", "zero_slots", "read_state")


def test_a_partial_backend_and_an_overriding_plugin() -> None:
    plugins = {
        "chip": Backend("chip", kv=Recorder("chip", "write", "rope_write"), memory=Recorder("chip", "gather")),
        "site": Override(conv=Recorder("site", "decode")),
    }
    hal = bind(plugins)
    found = hal.describe(allocate(hal))
    assert found.layouts == {"kv": "reference", "conv": "reference"}
    assert found.methods["kv: kv.write"] == found.methods["memory.gather"] == "chip"
    assert found.methods["conv: conv.decode"] == "site"
    kv = {"kv: kv.write_latent", "kv: kv.move"}
    conv = {f"conv: conv.{name}" for name in STEPS}
    names = ("translate", "update_table", "copy_pages", "zero_pages", "scatter", "alloc_pinned", "record", "wait")
    assert set(found.fallbacks) == kv | conv | {f"memory.{name}" for name in names}
    lines = str(found).splitlines()
    assert "  layout of kv: reference" in lines
    assert "  conv: conv.decode: site" in lines
    assert lines[-1].startswith("  done by the reference because 'chip' lacks them: memory.translate, ")
    assert lines[-1].endswith("kv: kv.write_latent, kv: kv.move, " + ", ".join(list(found.fallbacks)[-len(STEPS) :]))


def test_why_a_backend_was_chosen() -> None:
    plugins = {"chip": Backend("chip")}
    assert bind(plugins).describe().reason == "highest priority of the ready: 'chip' 5, 'reference' 0"
    assert bind(plugins, "reference").describe().reason == "named by the caller"


def test_a_pool_that_another_binding_made_can_be_described() -> None:
    pool = allocate(bind(), ATTENTION)
    hal = bind({"chip": Backend("chip", kv=Recorder("chip", "write"))})
    assert hal.describe(pool).methods["kv: kv.write"] == "chip"
