"""The items of a batch, refused as a whole where one is wrong, with the header that each part has."""

from collections.abc import Sequence

from statehal.portability.store.buffers import BufferLike, byte_view
from statehal.portability.store.keys import key_bytes
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.protocol import PartRef


class Forms:
    """The header of each part of a namespace, which is the same in every block and made once."""

    def __init__(self, *, checked: bool) -> None:
        self._checked = checked
        self._made: dict[tuple[str, str], PartFormat] = {}

    def of(self, ref: PartRef) -> PartFormat:
        """The header of that part in every block.

        Raises:
            ArgumentError: its key is no key.
        """
        key_bytes(ref.key)
        name = ref.namespace.digest, ref.part.id
        form = self._made.get(name)
        if form is None or (form.part is not ref.part and form.part != ref.part):
            form = self._made[name] = PartFormat(ref.namespace, ref.part, checked=self._checked)
        return form

    def with_views(
        self, items: Sequence[tuple[PartRef, BufferLike]], *, writable: bool
    ) -> list[tuple[PartRef, PartFormat, memoryview]]:
        """Each part with its header and with its buffer as bytes.

        Raises:
            ArgumentError: a key is none, or a buffer does not fit its part; nothing has been done then.
        """
        forms = [self.of(ref) for ref, _ in items]
        return [
            (ref, form, byte_view(buffer, form.payload_bytes, ref, writable=writable))
            for (ref, buffer), form in zip(items, forms, strict=True)
        ]
