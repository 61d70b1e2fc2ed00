package com.github.globalrefdb.gerrit.moves;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * Records in a file how far Gerrit's indexes have followed the list of moves. Gerrit commits its indexes only from time
 * to time, so a killed Gerrit loses the latest entries. The file keeps the places of that time, and the next Gerrit
 * goes back to a place whose index entries were committed.
 *
 * <p>Lines, oldest first: {@code committed PLACE}, then {@code TIME PLACE} for the places saved by this run of Gerrit,
 * by a monotonic clock in milliseconds with an arbitrary origin. The file is replaced, never rewritten, and not synced:
 * after a crash of the machine the daemon begins a new list.
 */
final class PlaceFile {
  private static final String COMMITTED = "committed";

  /** The time between the places that are kept. */
  private static final long STEP_MS = 15_000;

  private final Path file;
  private final Optional<Duration> committedWithin;
  private Optional<String> committed = Optional.empty();
  private final List<Saved> saved = new ArrayList<>(); // later than committed

  private record Saved(long time, String place) {}

  /**
   * @param committedWithin the time after which index entries are committed; empty if that is never certain while
   *     Gerrit runs
   */
  PlaceFile(Path file, Optional<Duration> committedWithin) {
    this.file = file;
    this.committedWithin = committedWithin;
  }

  /**
   * The place to follow from; empty if everything must be compared, because there is no file, or none of its places is
   * old enough for everything before it to be committed.
   */
  synchronized Optional<String> load() throws IOException {
    committed = Optional.empty();
    saved.clear();
    List<String> lines;
    try {
      lines = Files.readAllLines(file, UTF_8);
    } catch (NoSuchFileException e) {
      return committed;
    }
    for (String line : lines) {
      String[] words = line.split(" ", -1);
      try {
        if (words.length != 2 || words[1].isEmpty()) {
          throw new IOException(file + " has a line that is no place: \"" + line + "\"");
        }
        if (words[0].equals(COMMITTED)) {
          committed = Optional.of(words[1]);
        } else {
          saved.add(new Saved(Long.parseLong(words[0]), words[1]));
        }
      } catch (NumberFormatException e) {
        throw new IOException(file + " has a line without a time: \"" + line + "\"", e);
      }
    }
    forgetCommitted();
    saved.clear();
    return committed;
  }

  /** Keeps the latest of the committed places. */
  private void forgetCommitted() {
    if (committedWithin.isEmpty() || saved.isEmpty()) {
      return;
    }
    long until = saved.get(saved.size() - 1).time() - committedWithin.get().toMillis();
    while (saved.get(0).time() <= until) {
      committed = Optional.of(saved.remove(0).place());
      if (saved.isEmpty()) {
        return;
      }
    }
  }

  /** Everything before {@code place} has just been indexed. */
  synchronized void save(String place, long now) throws IOException {
    int size = saved.size();
    if (size >= 2 && now - saved.get(size - 2).time() < STEP_MS) {
      saved.remove(size - 1);
    }
    saved.add(new Saved(now, place));
    forgetCommitted();
    write();
  }

  /**
   * The indexes are closed, so everything saved is committed. The place goes back by {@code margin}, because Gerrit may
   * have been stopped before it indexed its own latest moves.
   */
  synchronized void saveCommitted(Duration margin) throws IOException {
    if (saved.isEmpty()) {
      return;
    }
    long until = saved.get(saved.size() - 1).time() - margin.toMillis();
    for (Saved s : saved) {
      if (s.time() <= until || committed.isEmpty()) {
        committed = Optional.of(s.place());
      }
    }
    saved.clear();
    write();
  }

  /** No place is certain any more. */
  synchronized void forget() throws IOException {
    committed = Optional.empty();
    saved.clear();
    Files.deleteIfExists(file);
  }

  private void write() throws IOException {
    StringBuilder text = new StringBuilder();
    committed.ifPresent(place -> text.append(COMMITTED).append(' ').append(place).append('\n'));
    saved.forEach(s -> text.append(s.time()).append(' ').append(s.place()).append('\n'));
    Files.createDirectories(file.getParent());
    Path written = file.resolveSibling(file.getFileName() + ".new");
    Files.writeString(written, text, UTF_8);
    Files.move(written, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }
}
