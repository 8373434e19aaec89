"""The settings of Chatwoot's agent bot."""

from typing import Self

from pydantic import Field, field_validator, model_validator

from shared.settings.credential_files import PasswordFile, read_password
from shared.settings.group import Group, check_http_url


class ChatwootSettings(Group):
    """A help desk whose customers are answered first by its agent bot. It posts to /channels/chatwoot at
    `gateway.http_port`; all three go together."""

    url: str = Field("", description="its address, https://chat.example: nothing is posted elsewhere (empty: none)")
    token_file: PasswordFile | None = Field(None, description="file with the agent bot's access token")
    secret_file: PasswordFile | None = Field(None, description="file with the secret that signs the bot's webhook")

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if url:
            check_http_url(url, example="https://chat.example", key_file="chatwoot.token_file")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if len({bool(self.url), self.token_file is not None, self.secret_file is not None}) > 1:
            raise ValueError("chatwoot.url, chatwoot.token_file and chatwoot.secret_file go together: set all or none")
        return self

    def token(self) -> str:
        assert self.token_file is not None
        return read_password(self.token_file)

    def key(self) -> bytes:
        assert self.secret_file is not None
        return read_password(self.secret_file).encode()
