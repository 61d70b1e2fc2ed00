package com.github.globalrefdb.gerrit.moves;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/**
 * Shows the state of comparisons to operators, and receives their requests: {@code refdbctl gerrit check} reads and
 * writes these files.
 *
 * <p>{@code compared} has one line about the last comparison: {@code began TIME}, or {@code ended TIME COMPARED STALE}.
 * Times are seconds since 1970. Creating {@code compare} requests a comparison.
 */
final class ComparisonFile {
  private final Path compared;
  private final Path compare;

  /**
   * @param directory need not exist
   */
  ComparisonFile(Path directory) {
    compared = directory.resolve("compared");
    compare = directory.resolve("compare");
  }

  void began(long seconds) throws IOException {
    write("began " + seconds);
  }

  void ended(long seconds, ComparedCount count) throws IOException {
    write("ended " + seconds + " " + count.compared() + " " + count.stale());
  }

  /** Whether a comparison was requested since the last call. */
  boolean asked() throws IOException {
    return Files.deleteIfExists(compare);
  }

  private void write(String line) throws IOException {
    Files.createDirectories(compared.getParent());
    Path written = compared.resolveSibling(compared.getFileName() + ".new");
    Files.writeString(written, line + "\n", UTF_8);
    Files.move(written, compared, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }
}
