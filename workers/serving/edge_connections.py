"""Connect an edge's worker to its centre. Workers that are not at an edge do not import this module."""

from contextlib import AsyncExitStack
from functools import partial

from shared.conversation.history import History
from shared.conversation.journal import Journal
from shared.kafka import Producer
from shared.records.log_readers import erasure_records
from shared.settings import Settings
from shared.settings.credential_files import read_password
from shared.versions.signature import read_trusted_keys
from shared.wire.session_key import SessionKey
from workers.edge.centre_pages import CentrePages
from workers.edge.link_time import LinkTime
from workers.edge.sync import FaqFiles, Sync
from workers.serving.centre import CentreClient


class EdgeConnections:
    """An edge's link to its centre. `centre` answers the questions that this edge is unsure of."""

    def __init__(self, settings: Settings, producer: Producer, history: History) -> None:
        """Create the link.

        Raises:
            SettingsError: a key cannot be read, or the stored FAQ has no valid signature.
        """
        edge, faq = settings.edge, settings.faq.path
        assert edge.token_file is not None, "the settings check it"
        assert edge.trusted_keys is not None, "the settings check it"
        assert faq is not None, "the settings check it"
        self._tenant, self._topics = settings.tenant, settings.kafka.topics
        self._producer, self._history = producer, history
        self._pages, self._journal = CentrePages(edge), Journal(settings.redis)
        files = FaqFiles(faq.parent, read_trusted_keys(edge.trusted_keys))
        files.open()
        link = LinkTime()
        self.sync = Sync(
            pages=self._pages,
            files=files,
            journal=self._journal,
            time=link,
            poll_s=edge.poll_s,
            erase=self._erase,
            forget_all=partial(history.forget_all, settings.tenant),
        )
        self.centre = CentreClient(
            url=edge.centre,
            token=partial(read_password, edge.token_file),
            tenant=self._tenant,
            link=link,
            reach=self.sync,
        )

    async def _erase(self, session_id: str, generation: int) -> None:
        """Erase a conversation that the centre has erased, and send the erasure to this edge's processes.

        It is sent at every call, since Redis may have recorded it without the processes having received it.

        Raises:
            StoreUnavailable, BrokerUnavailable: it failed; call it again.
        """
        session = SessionKey(self._tenant, session_id)
        begun = await self._history.generation(session)
        if begun < generation:
            begun = await self._history.delete(session, generation=generation, journal=False)
        for record in erasure_records(self._topics, session, begun):
            await self._producer.publish(record)

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for part in (self._journal, self._pages, self.centre):
                closing.push_async_callback(part.close)
