package com.github.globalrefdb.gerrit;

import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.eclipse.jgit.lib.AnyObjectId;
import org.eclipse.jgit.lib.ObjectId;
import org.eclipse.jgit.lib.Ref;
import org.eclipse.jgit.lib.RefDatabase;

/** Reads the present refs from the disk, and formats their values like the daemon. */
final class RefReader {
  static final String ABSENT = ObjectId.zeroId().name();
  private static final String SYMBOLIC = "ref:";

  private final RefDatabase refs;

  RefReader(RefDatabase refs) {
    this.refs = refs;
  }

  /**
   * Within a request Gerrit reads packed refs from a snapshot, which creating an update refreshes. {@code
   * RefDatabase.refresh} would clear it.
   */
  void refresh(String ref) throws IOException {
    refs.newUpdate(ref, false);
  }

  /** The refs of these names that exist. */
  Map<String, Ref> read(Collection<String> names) throws IOException {
    if (names.isEmpty()) {
      return Map.of();
    }
    refresh(names.iterator().next());
    return refs.exactRef(names.toArray(String[]::new));
  }

  /** The values of these refs, by name. */
  Map<String, String> values(Collection<String> names) throws IOException {
    Map<String, Ref> found = read(names);
    Map<String, String> values = new HashMap<>();
    names.forEach(name -> values.put(name, value(found.get(name))));
    return values;
  }

  /** A ref's own value; for a symbolic ref, its target. */
  static String value(Ref ref) {
    if (ref == null) {
      return ABSENT;
    }
    return ref.isSymbolic() ? symbolic(ref.getTarget().getName()) : value(ref.getObjectId());
  }

  static String value(AnyObjectId id) {
    return id == null ? ABSENT : id.name();
  }

  static String symbolic(String target) {
    return SYMBOLIC + target;
  }

  static boolean isSymbolic(String value) {
    return value.startsWith(SYMBOLIC);
  }

}
