package ginnel;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;

/** A record of YCSB as one value: for each field the lengths of name and content, then both. */
final class Codec {
  private Codec() {}

  static byte[] encode(Map<String, ByteIterator> fields) {
    Map<byte[], byte[]> parts = new HashMap<>();
    int length = 0;
    for (Map.Entry<String, ByteIterator> field : fields.entrySet()) {
      byte[] name = field.getKey().getBytes(StandardCharsets.UTF_8);
      byte[] content = field.getValue().toArray();
      parts.put(name, content);
      length += 8 + name.length + content.length;
    }
    ByteBuffer record = ByteBuffer.allocate(length);
    for (Map.Entry<byte[], byte[]> part : parts.entrySet()) {
      record.putInt(part.getKey().length).putInt(part.getValue().length);
      record.put(part.getKey()).put(part.getValue());
    }
    return record.array();
  }

  /** Puts the fields that are wanted (null: all) into a map, and says whether the record was whole. */
  static boolean decode(byte[] record, Set<String> wanted, Map<String, ByteIterator> into) {
    ByteBuffer rest = ByteBuffer.wrap(record);
    try {
      while (rest.hasRemaining()) {
        int nameLength = rest.getInt();
        int length = rest.getInt();
        int at = rest.position();
        if (nameLength < 0 || length < 0 || length > rest.remaining() - nameLength) {
          return false;
        }
        String name = new String(record, at, nameLength, StandardCharsets.UTF_8);
        if (wanted == null || wanted.contains(name)) {
          into.put(name, new ByteArrayByteIterator(record, at + nameLength, length));
        }
        rest.position(at + nameLength + length);
      }
    } catch (BufferUnderflowException cut) {
      return false;
    }
    return true;
  }
}
