package com.github.globalrefdb.gerrit.moves;

import com.google.gerrit.index.Index;
import com.google.gerrit.index.IndexConfig;
import com.google.gerrit.index.QueryOptions;
import com.google.gerrit.index.SchemaFieldDefs.SchemaField;
import com.google.gerrit.index.query.FieldBundle;
import com.google.gerrit.index.query.Predicate;
import com.google.gerrit.index.query.QueryParseException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/** The keys of all entries of an index, including entries whose object no longer exists. */
final class IndexedKeys {
  private static final int MOST = 1 << 24;

  private IndexedKeys() {}

  /**
   * @param index null if this Gerrit has none: a replica has only the index of groups
   * @param key a stored field
   */
  static <V> List<String> of(Index<?, V> index, IndexConfig config, SchemaField<V, String> key) throws QueryParseException {
    if (index == null) {
      return List.of();
    }
    QueryOptions options = QueryOptions.create(config, 0, MOST, Set.of(key.getName()));
    List<String> keys = new ArrayList<>();
    for (FieldBundle entry : index.getSource(Predicate.any(), options).readRaw()) {
      String value = entry.getValue(key);
      keys.add(value);
    }
    return keys;
  }
}
