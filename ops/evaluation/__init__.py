"""Judge whether answers are right: questions with the facts that belong in their answers, asked of a system and
judged."""
