"""Operations on batch predictions."""
